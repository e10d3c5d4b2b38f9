"""Questions of your own in SQL: which documents are read most, who is named in answers, what failed?

pip install 'ragtrace-audit'
python examples/own_sql.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import ragtrace

SHELF = {
    "salaries": "Ann Lee earns 90000 a year.",
    "hours": "The office opens at nine.",
    "visitors": "Visitors sign in at the desk.",
}


@ragtrace.pipeline("office")
def ask(question: str) -> str:
    words = set(question.lower().split())
    with ragtrace.retrieval(question) as stage:
        ranked = sorted(SHELF, key=lambda name: -len(words & set(SHELF[name].lower().rstrip(".").split())))
        found = stage.documents([ragtrace.Document(SHELF[name], id=name) for name in ranked[:2]])
    with ragtrace.generation("\n".join(d.content for d in found), model="parrot") as stage:
        return stage.response(stage.prompt.split("\n")[0] + (" Bob Ray knows." if "who" in words else ""))


database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")
asked = ("When does the office open", "Who earns 90000 a year", "Where do visitors sign", "What does ann lee earn")
for question in asked:
    ask(question)
tracing.flush()

# A plain DuckDB connection: every view has a comment on each column (`DESCRIBE documents`, or docs/reference).
# On the command line, the same questions: ragtrace sql --db traces.duckdb "SELECT …"
db = ragtrace.open(database)

print("Which documents are retrieved most?")
print(
    ragtrace.table(
        db.sql(
            "SELECT document_id, count(*) AS times FROM documents WHERE phase = 'retrieved' "
            "GROUP BY ALL ORDER BY times DESC, document_id"
        )
    )
)

print("\nWhich people are named in answers, and did a document say so?")
for name, source in db.execute(
    "SELECT text, bool_or(in_documents) FROM entities WHERE type = 'PERSON_NAME' GROUP BY text ORDER BY text"
).fetchall():
    print(f"  {name}: {'from a document' if source else 'nobody told the model'}")

print("\nDid any stage fail?")
for stage, calls, failed in db.execute(
    "SELECT stage, count(*), count(*) FILTER (status = 'ERROR') FROM stages GROUP BY stage ORDER BY stage"
).fetchall():
    print(f"  {stage}: {failed} of {calls}")
