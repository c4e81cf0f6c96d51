create table migrated (id bigint primary key, what text);
insert into migrated values (1, 'first');
