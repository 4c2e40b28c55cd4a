"""The words everybody shares: records, kinds, times, texts, settings, errors."""
