"""Tables, pictures and the explorer page: how fragments and launches are shown."""
