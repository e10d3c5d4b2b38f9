"""PubMedQA, labelled part: a question that a paper's title asks, its abstract, and the abstract's conclusion.

Jin et al. 2019; 1,000 questions, the first 50 of which are one of Mind the Hook's corpora. Read from
``pubmedqa.jsonl``, which does not come with ragtrace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ragtrace.corpora._files import data_file, json_lines, require
from ragtrace.corpora._questions import Content, Entry, QuestionCorpus


class PubMedQA(QuestionCorpus):
    """The corpus source ``pubmedqa``; the answer is the conclusion, the passage the abstract without it.

    :param folder: that holds the file; see ``ragtrace.corpora._files.data_file`` for where it is looked for.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, content: Content = "question_answer") -> None:
        super().__init__("pubmedqa", content)
        self.folder = folder

    def entries(self) -> Iterator[Entry]:
        """All questions, by the papers' PubMed ids."""
        path = data_file("pubmedqa.jsonl", self.folder)
        for at, row in json_lines(path):
            require(path, ["pubid", "question", "long_answer", "contexts"], list(row), f" line {at}")
            passage = "\n".join(row["contexts"])
            yield Entry(f"pubmed-{row['pubid']}", row["question"], row["long_answer"], passage=passage)


CORPUS = PubMedQA()
