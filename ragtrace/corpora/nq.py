"""Natural Questions, open version: what people asked a search engine, with short answers from Wikipedia.

Kwiatkowski et al. 2019, Lee et al. 2019; one of S²MIA's two data sets. Read from ``nq.jsonl`` (the dev split with the
annotated paragraphs) and ``nq_extra.jsonl`` (further questions without), which do not come with ragtrace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ragtrace.corpora._files import data_file, json_lines, require
from ragtrace.corpora._questions import Content, Entry, QuestionCorpus


class NaturalQuestions(QuestionCorpus):
    """The corpus source ``nq``; the first accepted answer is the document's.

    :param folder: that holds the files; see ``ragtrace.corpora._files.data_file`` for where they are looked for.
    :param content: ``passage`` takes the questions with an annotated paragraph only (2,655 of 3,610).
    :param extra: with the questions of ``nq_extra.jsonl``. One source alone has fewer documents, of one making.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, content: Content = "question_answer", extra: bool = True
    ) -> None:
        super().__init__("nq", content)
        self.folder, self.extra = folder, extra

    def entries(self) -> Iterator[Entry]:
        """The dev split, then the others."""
        passages = self.content == "passage"
        for name in ("nq.jsonl", *(("nq_extra.jsonl",) if self.extra and not passages else ())):
            path = data_file(name, self.folder)
            for at, row in json_lines(path):
                require(path, ["id", "question", "answers"], list(row), f" line {at}")
                if row.get("passage") or not passages:
                    answers = tuple(row["answers"])
                    answer = answers[0] if answers else ""
                    yield Entry(row["id"], row["question"], answer, answers, row.get("passage"))


CORPUS = NaturalQuestions()
