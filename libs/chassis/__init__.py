"""What every service stands on. Nothing here knows a word of sessions, distillation or memory."""
