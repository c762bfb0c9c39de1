"""The two items of a turn, which ours, the limit and the peers are all given."""

import json

ITEMS = [
    json.dumps(
        {
            "type": "message",
            "role": "user",
            "content": "Could you move my appointment at the dentist to Thursday afternoon, and tell Marta?",
        }
    ),
    json.dumps(
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done: Thursday at 15:30. Marta knows that you will be late."}],
        }
    ),
]
RELOADED = 50  # items of a session that is reloaded
APPENDED = 3  # items that a turn of an agent adds to those
TURN_CLIENTS = (1, 8)
CLIENTS = (1, 8, 32)
SESSIONS_PER_CLIENT = 10  # that appends go to, in turn
ALONE = 8  # clients of a peer that is made to do the least it can
