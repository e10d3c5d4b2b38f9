"""What is taken apart or encoded, and put together again: the same as before, if nothing was done in between."""

from __future__ import annotations

import ast

from ragtrace.inventory.members import source
from ragtrace.inventory.objects import Objects
from ragtrace.inventory.values import Const, Packed, Ref, State, Value

_CODES = {
    "json.dumps": "code json", "pickle.dumps": "code pickle", "base64.b64encode": "code base64",
    "base64.urlsafe_b64encode": "code urlsafe", "urllib.parse.quote": "code quote", "zlib.compress": "code zlib",
    "binascii.hexlify": "code hex",
}  # fmt: skip
_BACK = {
    "json.loads": "code json", "pickle.loads": "code pickle", "base64.b64decode": "code base64",
    "base64.urlsafe_b64decode": "code urlsafe", "urllib.parse.unquote": "code quote", "zlib.decompress": "code zlib",
    "binascii.unhexlify": "code hex",
}  # fmt: skip


class Undone(Objects):
    """Other calls are in :class:`~ragtrace.inventory.known.Known`."""

    def packed(self, value: Value, step: str, node: ast.expr, state: State) -> Packed | None:
        """The unchanged input, or what was packed already, after another step."""
        if isinstance(value, Packed):
            return Packed("weak", source(node), node.lineno, value.inner, (*value.steps, step))
        if isinstance(value, Ref) and state.dirt(value) is None and state.cells[value.cell].kind in ("text", "list"):
            return Packed("weak", source(node), node.lineno, value, (step,))
        return None

    def coded(self, name: str, node: ast.Call, args: list[Value], state: State) -> Value | None:
        """``json.dumps``, ``json.loads`` and the like."""
        if len(args) != 1:
            return None
        if name in _CODES:
            return self.packed(args[0], _CODES[name], node, state)
        if name in _BACK and isinstance(args[0], Packed) and args[0].steps[-1] == _BACK[name]:
            return self.unpacked(args[0], node, state)
        return None

    def taken_apart(self, name: str, node: ast.Call, receiver: Value, args: list[Value], state: State) -> Value | None:
        """A text's ``split``, ``encode`` and ``decode``. Whether a bare text comes back as it was is left open."""
        if name in ("split", "splitlines"):
            return self.packed(receiver, "split", node, state)
        lossless = all(isinstance(a, Const) and str(a.value).lower() in ("utf-8", "utf8") for a in args)
        if name == "encode" and lossless and not node.keywords:
            return self.packed(receiver, "encode", node, state)
        if name != "decode" or not isinstance(receiver, Packed) or receiver.steps == ("encode",):
            return None
        if receiver.steps[-1] == "encode":
            return self.unpacked(receiver, node, state)
        return receiver  # the bytes of a code are those of its letters

    def unpacked(self, value: Packed, node: ast.expr, state: State) -> Value:
        """The last step undone."""
        if len(value.steps) > 1:
            return Packed("weak", source(node), node.lineno, value.inner, value.steps[:-1])
        return self.copy(value.inner, state, deep=True)
