"""Mechanisms besides feedback offsets that send tokens to other experts: overflow, tiers, diversion, rotation."""
