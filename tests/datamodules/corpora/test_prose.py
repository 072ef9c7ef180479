from inspect import cleandoc

from datamodules.corpora.harvest import summary_and_body

STYLES = {
    """
    Return the *mean* of ``values`` along an :class:`~pkg.Axis`.

    The mean is the sum over the count [1]_, see the `guide <https://x.org>`_.

    .. note::

        Code in boxes goes.

    .. warning:: Beware
        It warns of :ref:`empty arrays<empty>` that you may give.

    Parameters
    ----------
    values : array_like, optional
        What is to be averaged, of any shape.
        It is not changed.
    axis : {0, 1}
        Axis along which the means are computed.

        - None means all of them.
        - A tuple means several of them.

    Notes
    -----
    Sums are pairwise, which is more exact::

        a + b

    Examples
    --------
    >>> mean([1, 2])
    1.5

    This is not prose of the function.
    """: """
        Return the mean of values along an pkg.Axis.
        The mean is the sum over the count, see the guide.
        It warns of empty arrays that you may give.
        What is to be averaged, of any shape. It is not changed.
        Axis along which the means are computed.
        None means all of them.
        A tuple means several of them.
        Sums are pairwise, which is more exact:
    """,
    """
    Opens the door of the house.
    Args:
        door (`Door`, *optional*, defaults to `None`):
            The door that is to be opened.
        key: A key that fits
            the lock of the door.

            It may be made of gold,
            which is heavy.
    Returns:
        bool: whether the door is open now.

    The door stays open afterwards.

        code_that_is_indented(1)

    - It may be
      locked as well.
    """: """
        Opens the door of the house.
        The door that is to be opened.
        A key that fits the lock of the door.
        It may be made of gold, which is heavy.
        whether the door is open now.
        The door stays open afterwards.
        It may be locked as well.
    """,
    """
    spam(eggs) -> ham

    Makes ham of the eggs.

    Nobody knows how it does that.

    :param eggs: The eggs to be used, fresh ones.
    :type eggs: list of eggs or None at all
    :return: The ham that they became.
    """: """
        Makes ham of the eggs.
        Nobody knows how it does that.
        The eggs to be used, fresh ones.
        The ham that they became.
    """,
}


def test_the_three_styles():
    for docstring, expected in STYLES.items():
        summary, *body = cleandoc(expected).splitlines()
        assert summary_and_body(cleandoc(docstring)) == (summary, body)


def test_what_is_no_prose_goes_and_a_first_paragraph_of_it_gives_nothing():
    for docstring in (">>> 1 + 1\n2\n\nAdds numbers.", "See the following:\n\nText.", ""):
        assert summary_and_body(docstring) is None, docstring
    blocks = ["| a | b |\n| 1 | 2 |", ".. math:: x = y", "$ pip install it", "```\ncode = 1\n```"]
    texts = ["A summary of it.", *blocks, "Words stay where they are."]
    assert summary_and_body("\n\n".join(texts)) == (texts[0], texts[-1:])
