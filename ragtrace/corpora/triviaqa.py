"""TriviaQA, open version: quiz questions, each with the aliases of its answer.

Joshi et al. 2017; one of S²MIA's two data sets. Read from ``triviaqa.jsonl``, which does not come with ragtrace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ragtrace.corpora._files import data_file, json_lines, require
from ragtrace.corpora._questions import Content, Entry, QuestionCorpus


class TriviaQA(QuestionCorpus):
    """The corpus source ``triviaqa``. The file does not say which alias is canonical: the document has the first.

    :param folder: that holds the file; see ``ragtrace.corpora._files.data_file`` for where it is looked for.
    :param content: ``question_answer`` or ``answer``.
    """

    contents = ("question_answer", "answer")

    def __init__(self, folder: str | os.PathLike[str] | None = None, content: Content = "question_answer") -> None:
        super().__init__("triviaqa", content)
        self.folder = folder

    def entries(self) -> Iterator[Entry]:
        """All questions."""
        path = data_file("triviaqa.jsonl", self.folder)
        for at, row in json_lines(path):
            require(path, ["id", "question", "answer", "aliases"], list(row), f" line {at}")
            yield Entry(row["id"], row["question"], row["answer"], tuple(row["aliases"]))


CORPUS = TriviaQA()
