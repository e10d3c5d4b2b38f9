"""Where does each defense act, by its source? Three witnesses decide in the end; this package holds the first."""

from ragtrace.inventory.source import DefenseFinding, HookFinding, Inventory, inventory

__all__ = ["DefenseFinding", "HookFinding", "Inventory", "inventory"]
