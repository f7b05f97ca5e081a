"""Commands of stages: started, watched, awaited."""
