alter table migrated add column n int default 7;
