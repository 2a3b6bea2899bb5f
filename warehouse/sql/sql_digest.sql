-- A digest of the SQL that defines the views and macros: where rlfocal's differs, the next writer renews them.
CREATE OR REPLACE MACRO sql_digest() AS '$digest';
