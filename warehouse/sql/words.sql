-- Sets of documents as bits. A block is 1,000 documents in eight words of 125 bits: DuckDB's operators then work on whole
-- words, of many sets at a time. (bit_count of a BIT looks at every bit; HUGEINT is the widest word that it counts.)

-- The bit of a document in its word, by its number.
CREATE OR REPLACE MACRO document_bit(number) AS 1::HUGEINT << (number % 125);

-- An aggregate: the words of one block, from numbered ones.
CREATE OR REPLACE MACRO words_of(bits, word) AS {
    w1: coalesce(bit_or(bits) FILTER (word % 8 = 0), 0), w2: coalesce(bit_or(bits) FILTER (word % 8 = 1), 0),
    w3: coalesce(bit_or(bits) FILTER (word % 8 = 2), 0), w4: coalesce(bit_or(bits) FILTER (word % 8 = 3), 0),
    w5: coalesce(bit_or(bits) FILTER (word % 8 = 4), 0), w6: coalesce(bit_or(bits) FILTER (word % 8 = 5), 0),
    w7: coalesce(bit_or(bits) FILTER (word % 8 = 6), 0), w8: coalesce(bit_or(bits) FILTER (word % 8 = 7), 0)
};

-- Documents in both sets.
CREATE OR REPLACE MACRO words_and(x, y) AS {
    w1: x.w1 & y.w1, w2: x.w2 & y.w2, w3: x.w3 & y.w3, w4: x.w4 & y.w4, w5: x.w5 & y.w5, w6: x.w6 & y.w6,
    w7: x.w7 & y.w7, w8: x.w8 & y.w8
};

-- Documents in the first set and not in the second.
CREATE OR REPLACE MACRO words_and_not(x, y) AS {
    w1: x.w1 & ~y.w1, w2: x.w2 & ~y.w2, w3: x.w3 & ~y.w3, w4: x.w4 & ~y.w4, w5: x.w5 & ~y.w5, w6: x.w6 & ~y.w6,
    w7: x.w7 & ~y.w7, w8: x.w8 & ~y.w8
};

-- Documents in the first set, or in both others.
CREATE OR REPLACE MACRO words_or_and(x, y, z) AS {
    w1: x.w1 | (y.w1 & z.w1), w2: x.w2 | (y.w2 & z.w2), w3: x.w3 | (y.w3 & z.w3), w4: x.w4 | (y.w4 & z.w4),
    w5: x.w5 | (y.w5 & z.w5), w6: x.w6 | (y.w6 & z.w6), w7: x.w7 | (y.w7 & z.w7), w8: x.w8 | (y.w8 & z.w8)
};

-- Documents in the first set, or in the second and not in the third.
CREATE OR REPLACE MACRO words_or_and_not(x, y, z) AS {
    w1: x.w1 | (y.w1 & ~z.w1), w2: x.w2 | (y.w2 & ~z.w2), w3: x.w3 | (y.w3 & ~z.w3), w4: x.w4 | (y.w4 & ~z.w4),
    w5: x.w5 | (y.w5 & ~z.w5), w6: x.w6 | (y.w6 & ~z.w6), w7: x.w7 | (y.w7 & ~z.w7), w8: x.w8 | (y.w8 & ~z.w8)
};

-- Documents in exactly one of two sets.
CREATE OR REPLACE MACRO words_xor(x, y) AS {
    w1: xor(x.w1, y.w1), w2: xor(x.w2, y.w2), w3: xor(x.w3, y.w3), w4: xor(x.w4, y.w4), w5: xor(x.w5, y.w5),
    w6: xor(x.w6, y.w6), w7: xor(x.w7, y.w7), w8: xor(x.w8, y.w8)
};

-- On which documents two models, of those that `model_words` returns, say the same.
CREATE OR REPLACE MACRO words_same(a, b) AS
    list_reduce(
        list_transform(a.code, lambda digits, i: warehouse.words_xor(digits, b.code[i])),
        lambda same, different: warehouse.words_and_not(same, different),
        warehouse.words_and(a.said, b.said)
    );

-- How many documents are in both sets.
CREATE OR REPLACE MACRO n_common(x, y) AS
    bit_count(x.w1 & y.w1)::INT + bit_count(x.w2 & y.w2)::INT + bit_count(x.w3 & y.w3)::INT
    + bit_count(x.w4 & y.w4)::INT + bit_count(x.w5 & y.w5)::INT + bit_count(x.w6 & y.w6)::INT
    + bit_count(x.w7 & y.w7)::INT + bit_count(x.w8 & y.w8)::INT;
