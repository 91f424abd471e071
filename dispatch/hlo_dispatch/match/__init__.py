"""The match room: from the flat graph and the table to matches and refusals. Decides nothing, edits nothing."""
