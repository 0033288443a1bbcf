"""The host side: rows on disk, summaries of them, figures from them."""
