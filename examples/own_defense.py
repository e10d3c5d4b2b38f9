"""A defense of your own: override the hooks that you use, switch it on round any call, and see what it really changed.

pip install 'ragtrace-audit'
python examples/own_defense.py
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import ragtrace
from ragtrace.inventory import inventory


class HidePhones(ragtrace.Defense):
    """Takes telephone numbers out of what was retrieved. What is not overridden is absent, not a stub."""

    name = "hide-phones"

    def on_content(self, query: str, documents: list[ragtrace.Document]) -> list[ragtrace.Document]:
        for document in documents:
            document.content = re.sub(r"\b\d{3}-\d{4}\b", "[phone]", document.content)
        return documents

    def on_response(self, query: str, documents: list[ragtrace.Document], response: str) -> str:
        return response  # TODO: one of the hooks that everybody means to write later


# A pipeline without a framework names its stages itself; LangChain and LlamaIndex need nothing of this.
@ragtrace.pipeline("contacts")
def ask(question: str) -> str:
    with ragtrace.retrieval(question) as stage:
        found = stage.documents(["Ann Lee: 555-0134.", "Opening hours: 9 to 5."])
    with ragtrace.generation("\n".join(found), model="parrot") as stage:
        return stage.response(stage.prompt)  # a model that repeats its prompt


database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")
with ragtrace.defend(HidePhones()):
    print("answer:", ask("How do I reach Ann?").replace("\n", " "))
tracing.flush()

# The run-time ledger says what each run changed ...
with ragtrace.open(database) as db:
    print("\nAt run time:")
    for row in ragtrace.verdicts(db):
        print(f"  {row['hook']}: {row['verdict']}, changed {row['changed']} of {row['runs']}")

# ... and the source says why a hook changed nothing. `ragtrace inventory FILE --db …` joins both into one verdict.
print("By its source:")
for row in ragtrace.table(inventory(HidePhones)):
    print(f"  {row['hook']}: {row['status']}")
