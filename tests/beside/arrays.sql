SELECT array[1,4,3] @> array[3,1,3], array[2,2,7] <@ array[1,7,4,2,6], array[1,4,3] && array[2,1], array[1,2,3] || array[4,5,6,7], 3 || array[4,5,6], array[4,5,6] || 7, array[1] || NULL::int[], array[1,2] = array[1,2], array[1,2] < array[1,3];
SELECT unnest(array[1,2]), unnest(array['a','b','c']);
SELECT * FROM unnest(array[1,2], array['a','b','c']) AS u (a, b);
SELECT * FROM unnest(array[1,2]) WITH ORDINALITY AS u (x, n);
SELECT x FROM unnest(array[3,1,2]) AS x ORDER BY x;
SELECT '{1,a}'::int[];
SELECT '{1,2'::int[];
SELECT array[[1,2],[3,4]];
SELECT array_dims(array[1,2,3]), array_dims(array[]::int[]), array_fill(11, array[2]);
