"""The commands of `emc`, by what they are for."""
