package org.apache.flink.connector.file.src.assigners;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Optional;
import java.util.PriorityQueue;
import org.apache.flink.connector.file.src.FileSourceSplit;

/**
 * Hands out files in the order of their names; stands before Flink's class of this name in the class path.
 *
 * <p>Flink's own promises no order, so event time may jump through the whole input, and rows that are
 * late by it are dropped without an error. With this one each reader's event time grows, and a watermark
 * is the least of all readers'.
 */
public class LocalityAwareSplitAssigner implements FileSplitAssigner {
    private final PriorityQueue<FileSourceSplit> waiting =
            new PriorityQueue<>(
                    Comparator.comparing((FileSourceSplit split) -> split.path().toString())
                            .thenComparingLong(FileSourceSplit::offset));

    public LocalityAwareSplitAssigner(Collection<FileSourceSplit> splits) {
        waiting.addAll(splits);
    }

    @Override
    public Optional<FileSourceSplit> getNext(String host) {
        return Optional.ofNullable(waiting.poll());
    }

    @Override
    public void addSplits(Collection<FileSourceSplit> splits) {
        waiting.addAll(splits);
    }

    @Override
    public Collection<FileSourceSplit> remainingSplits() {
        return new ArrayList<>(waiting);
    }
}
