"""Hostile addresses and operands for every instruction that touches memory."""
