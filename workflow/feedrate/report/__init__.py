"""What people read: tables, figures and the article of the report."""
