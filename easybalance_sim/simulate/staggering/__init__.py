"""Cross-layer staggering: the ranks of every layer relabelled so that no rank is hot in all layers."""
