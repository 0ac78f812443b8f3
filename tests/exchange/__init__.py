"""Models that go to and come from other libraries."""
