"""The real assistants, each driven by one adapter, so that every promise is asked of every one of them."""
