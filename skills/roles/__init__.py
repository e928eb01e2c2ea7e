"""Classifies passages into the six roles of SkillPager, in English and Chinese."""

from skills.roles.classifier import RoleClassifier, classify_passages
from skills.roles.rules import RolePrediction

__all__ = ["RoleClassifier", "RolePrediction", "classify_passages"]
