"""How an item is told. Postgres writes it: a list of 50 costs a third less than one that Python makes of rows."""

from libs.chassis.times import rfc3339_sql


def item_text(session: str) -> str:
    """An item as JSON with its `data` as it was sent, as SQL over a row of items; null where `data` is.

    `session` is the first half of `domain.ids.item_id`, as `hex_of` makes it: once for all rows.
    """
    said = """coalesce(',"occurred_at":"' || occurred_at || '"', '')"""
    return (
        f"""'{{"item_id":"' || {session} || lpad(to_hex(position), 16, '0') || '","data":' || data"""
        f""" || ',"create_time":"' || {rfc3339_sql("create_time")} || '","position":' || position || {said} || '}}'"""
    )


def item_texts(session: str, direction: str = "asc") -> str:
    """Several by position, divided by commas; of those without `data` none."""
    return f"string_agg({item_text(session)}, ',' order by position {direction})"


def hex_of(uid: str) -> str:
    return f"replace({uid}::text, '-', '')"
