"""One file a container format: bytes or JSON in, spans out. No reader knows what an attribute means."""
