"""The PII middleware masks an agent's answer, unless the answer is streamed (langchain#35011). ragtrace finds out.

pip install 'ragtrace-audit[langchain]' langchain
python examples/pii_middleware.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

import ragtrace

folder = Path(tempfile.mkdtemp())
tracing = ragtrace.setup(folder / "traces.duckdb", capture="full")

answer = AIMessage("The contract is signed by Ann Lee, ann.lee@corp.com.")
agent = create_agent(
    GenericFakeChatModel(messages=iter([answer, answer])),
    middleware=[PIIMiddleware("email", apply_to_output=True)],
)
question = {"messages": [{"role": "user", "content": "Who signs?"}]}

print("invoke:", agent.invoke(question)["messages"][-1].text)
print("stream:", "".join(chunk.text for chunk, _ in agent.stream(question, stream_mode="messages")))

tracing.flush()
db = ragtrace.open(folder / "traces.duckdb")
print("\nWhere does the middleware act?")
for row in db.execute("SELECT defense, hook, verdict, bypassed_paths FROM verdicts ORDER BY hook").fetchall():
    print("  " + " · ".join(str(value) for value in row if value))
print("\nWhich calls went round it?")
for row in db.execute("SELECT path, ran FROM coverage WHERE hook = 'response' ORDER BY ran").fetchall():
    print("  {} · {}".format(row[0], "masked" if row[1] else "raw text had left before it ran"))
