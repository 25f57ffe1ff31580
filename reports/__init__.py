"""What is recorded: records, schema, reading and writing, and renderings. Imports nothing of ours."""
