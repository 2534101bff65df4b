"""Commands of operators: back up, restore, move to another database, diagnose."""
