from benchmarks.data_parallel import prepared


def test_processes_share_the_documents_of_each_batch(tiny_config):
    arguments = [str(tiny_config), "--data.batch_size=4"]
    _, batches = prepared(arguments)
    shares = [prepared(arguments, rank, processes=2)[1] for rank in (0, 1)]
    assert batches and [len(batch.ids) for batch in shares[0]][:1] == [2]
    for batch, first, second in zip(batches, *shares, strict=True):
        assert sorted(batch.ids) == sorted({*first.ids, *second.ids})
