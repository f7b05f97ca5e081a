"""JSON read strictly, quickly or in part, and objects taken apart field by field."""
