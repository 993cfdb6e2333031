"""The integer hash of the compiled core in plain Python, and its inverse."""

from __future__ import annotations

M = 2**64 - 1


def mix64(key):
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & M
    key = (key ^ key >> 27) * 0x94D049BB133111EB & M
    return key ^ key >> 31


def unmix64(hashed):
    """The key with this hash: a test makes keys collide on purpose with it."""
    hashed ^= hashed >> 31 ^ hashed >> 62
    hashed = hashed * pow(0x94D049BB133111EB, -1, 2**64) & M
    hashed ^= hashed >> 27 ^ hashed >> 54
    hashed = hashed * pow(0xBF58476D1CE4E5B9, -1, 2**64) & M
    return hashed ^ hashed >> 30 ^ hashed >> 60
