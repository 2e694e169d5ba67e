"""Proposals that several samplers share."""
