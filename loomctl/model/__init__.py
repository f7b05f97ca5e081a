"""What things are and how to decide about them; pure: no disk, clock, environment or network."""
