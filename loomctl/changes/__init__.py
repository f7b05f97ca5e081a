"""What a step touched: files of the checkout, assets."""
