"""How the functions of each library are called, and what they ought to return."""
