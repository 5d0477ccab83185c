"""The Debug Adapter Protocol: editors step through recorded launches.

- ``framing``: messages on a stream
- ``adapter``: requests and their answers
- ``showing``: frames, scopes, variables and memory
"""
