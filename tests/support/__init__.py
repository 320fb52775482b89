"""What tests share: drivers and parties. It is on the path of every test (see ``tests/conftest.py``)."""
