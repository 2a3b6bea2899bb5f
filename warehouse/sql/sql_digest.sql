-- Of which SQL the views and macros are: where it is another than rlfocal's, the next writer renews them.
CREATE OR REPLACE MACRO sql_digest() AS '$digest';
