"""Study of paragraph graphs on meetings."""
