//! The columns of `pg_catalog`'s relations, as PostgreSQL 15 has them.
//!
//! One line a relation: OID, name, kind (`r` table, `v` view), columns as `name:type`. A relation
//! that has nothing to tell here is empty, which is the truth: there are no triggers, policies,
//! publications or sequences. Every table ends with `xmin` and `tableoid`, which clients ask for by
//! name; as plain columns, since the engine has no hidden ones.

/// The relations, one a line.
pub(super) const RELATIONS: &str = "\
2600 pg_aggregate r aggfnoid:regproc aggkind:char aggnumdirectargs:int2 aggtransfn:regproc \
aggfinalfn:regproc aggcombinefn:regproc aggserialfn:regproc aggdeserialfn:regproc \
aggmtransfn:regproc aggminvtransfn:regproc aggmfinalfn:regproc aggfinalextra:bool \
aggmfinalextra:bool aggfinalmodify:char aggmfinalmodify:char aggsortop:oid aggtranstype:oid \
aggtransspace:int4 aggmtranstype:oid aggmtransspace:int4 agginitval:text aggminitval:text\n\
2601 pg_am r oid:oid amname:name amhandler:regproc amtype:char\n\
2602 pg_amop r oid:oid amopfamily:oid amoplefttype:oid amoprighttype:oid amopstrategy:int2 \
amoppurpose:char amopopr:oid amopmethod:oid amopsortfamily:oid\n\
2603 pg_amproc r oid:oid amprocfamily:oid amproclefttype:oid amprocrighttype:oid amprocnum:int2 \
amproc:regproc\n\
2604 pg_attrdef r oid:oid adrelid:oid adnum:int2 adbin:text\n\
1249 pg_attribute r attrelid:oid attname:name atttypid:oid attstattarget:int4 attlen:int2 \
attnum:int2 attndims:int4 attcacheoff:int4 atttypmod:int4 attbyval:bool attalign:char \
attstorage:char attcompression:char attnotnull:bool atthasdef:bool atthasmissing:bool \
attidentity:char attgenerated:char attisdropped:bool attislocal:bool attinhcount:int4 \
attcollation:oid attacl:text[] attoptions:text[] attfdwoptions:text[] attmissingval:text\n\
1261 pg_auth_members r roleid:oid member:oid grantor:oid admin_option:bool\n\
1260 pg_authid r oid:oid rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool \
rolcreatedb:bool rolcanlogin:bool rolreplication:bool rolbypassrls:bool rolconnlimit:int4 \
rolpassword:text rolvaliduntil:timestamptz\n\
12085 pg_available_extension_versions v name:name version:text installed:bool superuser:bool \
trusted:bool relocatable:bool schema:name requires:name[] comment:text\n\
12081 pg_available_extensions v name:name default_version:text installed_version:text comment:text\n\
12138 pg_backend_memory_contexts v name:text ident:text parent:text level:int4 total_bytes:int8 \
total_nblocks:int8 free_bytes:int8 free_chunks:int8 used_bytes:int8\n\
2605 pg_cast r oid:oid castsource:oid casttarget:oid castfunc:oid castcontext:char castmethod:char\n\
1259 pg_class r oid:oid relname:name relnamespace:oid reltype:oid reloftype:oid relowner:oid \
relam:oid relfilenode:oid reltablespace:oid relpages:int4 reltuples:float4 relallvisible:int4 \
reltoastrelid:oid relhasindex:bool relisshared:bool relpersistence:char relkind:char relnatts:int2 \
relchecks:int2 relhasrules:bool relhastriggers:bool relhassubclass:bool relrowsecurity:bool \
relforcerowsecurity:bool relispopulated:bool relreplident:char relispartition:bool relrewrite:oid \
relfrozenxid:xid relminmxid:xid relacl:text[] reloptions:text[] relpartbound:text\n\
3456 pg_collation r oid:oid collname:name collnamespace:oid collowner:oid collprovider:char \
collisdeterministic:bool collencoding:int4 collcollate:text collctype:text colliculocale:text \
collversion:text\n\
12130 pg_config v name:text setting:text\n\
2606 pg_constraint r oid:oid conname:name connamespace:oid contype:char condeferrable:bool \
condeferred:bool convalidated:bool conrelid:oid contypid:oid conindid:oid conparentid:oid \
confrelid:oid confupdtype:char confdeltype:char confmatchtype:char conislocal:bool \
coninhcount:int4 connoinherit:bool conkey:int2[] confkey:int2[] conpfeqop:oid[] conppeqop:oid[] \
conffeqop:oid[] confdelsetcols:int2[] conexclop:oid[] conbin:text\n\
2607 pg_conversion r oid:oid conname:name connamespace:oid conowner:oid conforencoding:int4 \
contoencoding:int4 conproc:regproc condefault:bool\n\
12077 pg_cursors v name:text statement:text is_holdable:bool is_binary:bool is_scrollable:bool \
creation_time:timestamptz\n\
1262 pg_database r oid:oid datname:name datdba:oid encoding:int4 datlocprovider:char \
datistemplate:bool datallowconn:bool datconnlimit:int4 datfrozenxid:xid datminmxid:xid \
dattablespace:oid datcollate:text datctype:text daticulocale:text datcollversion:text \
datacl:text[]\n\
2964 pg_db_role_setting r setdatabase:oid setrole:oid setconfig:text[]\n\
826 pg_default_acl r oid:oid defaclrole:oid defaclnamespace:oid defaclobjtype:char \
defaclacl:text[]\n\
2608 pg_depend r classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid refobjsubid:int4 \
deptype:char\n\
2609 pg_description r objoid:oid classoid:oid objsubid:int4 description:text\n\
3501 pg_enum r oid:oid enumtypid:oid enumsortorder:float4 enumlabel:name\n\
3466 pg_event_trigger r oid:oid evtname:name evtevent:name evtowner:oid evtfoid:oid \
evtenabled:char evttags:text[]\n\
3079 pg_extension r oid:oid extname:name extowner:oid extnamespace:oid extrelocatable:bool \
extversion:text extconfig:oid[] extcondition:text[]\n\
12110 pg_file_settings v sourcefile:text sourceline:int4 seqno:int4 name:text setting:text \
applied:bool error:text\n\
2328 pg_foreign_data_wrapper r oid:oid fdwname:name fdwowner:oid fdwhandler:oid fdwvalidator:oid \
fdwacl:text[] fdwoptions:text[]\n\
1417 pg_foreign_server r oid:oid srvname:name srvowner:oid srvfdw:oid srvtype:text srvversion:text \
srvacl:text[] srvoptions:text[]\n\
3118 pg_foreign_table r ftrelid:oid ftserver:oid ftoptions:text[]\n\
12010 pg_group v groname:name grosysid:oid grolist:oid[]\n\
12114 pg_hba_file_rules v line_number:int4 type:text database:text[] user_name:text[] \
address:text netmask:text auth_method:text options:text[] error:text\n\
12118 pg_ident_file_mappings v line_number:int4 map_name:text sys_name:text pg_username:text \
error:text\n\
2610 pg_index r indexrelid:oid indrelid:oid indnatts:int2 indnkeyatts:int2 indisunique:bool \
indnullsnotdistinct:bool indisprimary:bool indisexclusion:bool indimmediate:bool \
indisclustered:bool indisvalid:bool indcheckxmin:bool indisready:bool indislive:bool \
indisreplident:bool indkey:int2vector indcollation:oidvector indclass:oidvector \
indoption:int2vector indexprs:text indpred:text\n\
12043 pg_indexes v schemaname:name tablename:name indexname:name tablespace:name indexdef:text\n\
2611 pg_inherits r inhrelid:oid inhparent:oid inhseqno:int4 inhdetachpending:bool\n\
3394 pg_init_privs r objoid:oid classoid:oid objsubid:int4 privtype:char initprivs:text[]\n\
2612 pg_language r oid:oid lanname:name lanowner:oid lanispl:bool lanpltrusted:bool \
lanplcallfoid:oid laninline:oid lanvalidator:oid lanacl:text[]\n\
2613 pg_largeobject r loid:oid pageno:int4 data:text\n\
2995 pg_largeobject_metadata r oid:oid lomowner:oid lomacl:text[]\n\
12073 pg_locks v locktype:text database:oid relation:oid page:int4 tuple:int2 virtualxid:text \
transactionid:xid classid:oid objid:oid objsubid:int2 virtualtransaction:text pid:int4 mode:text \
granted:bool fastpath:bool waitstart:timestamptz\n\
12038 pg_matviews v schemaname:name matviewname:name matviewowner:name tablespace:name \
hasindexes:bool ispopulated:bool definition:text\n\
2615 pg_namespace r oid:oid nspname:name nspowner:oid nspacl:text[]\n\
2616 pg_opclass r oid:oid opcmethod:oid opcname:name opcnamespace:oid opcowner:oid opcfamily:oid \
opcintype:oid opcdefault:bool opckeytype:oid\n\
2617 pg_operator r oid:oid oprname:name oprnamespace:oid oprowner:oid oprkind:char \
oprcanmerge:bool oprcanhash:bool oprleft:oid oprright:oid oprresult:oid oprcom:oid oprnegate:oid \
oprcode:regproc oprrest:regproc oprjoin:regproc\n\
2753 pg_opfamily r oid:oid opfmethod:oid opfname:name opfnamespace:oid opfowner:oid\n\
6243 pg_parameter_acl r oid:oid parname:text paracl:text[]\n\
3350 pg_partitioned_table r partrelid:oid partstrat:char partnatts:int2 partdefid:oid \
partattrs:int2vector partclass:oidvector partcollation:oidvector partexprs:text\n\
12018 pg_policies v schemaname:name tablename:name policyname:name permissive:text roles:name[] \
cmd:text qual:text with_check:text\n\
3256 pg_policy r oid:oid polname:name polrelid:oid polcmd:char polpermissive:bool polroles:oid[] \
polqual:text polwithcheck:text\n\
12095 pg_prepared_statements v name:text statement:text prepare_time:timestamptz \
parameter_types:oid[] from_sql:bool generic_plans:int8 custom_plans:int8\n\
12090 pg_prepared_xacts v transaction:xid gid:text prepared:timestamptz owner:name database:name\n\
1255 pg_proc r oid:oid proname:name pronamespace:oid proowner:oid prolang:oid procost:float4 \
prorows:float4 provariadic:oid prosupport:regproc prokind:char prosecdef:bool proleakproof:bool \
proisstrict:bool proretset:bool provolatile:char proparallel:char pronargs:int2 \
pronargdefaults:int2 prorettype:oid proargtypes:oidvector proallargtypes:oid[] proargmodes:char[] \
proargnames:text[] proargdefaults:text protrftypes:oid[] prosrc:text probin:text prosqlbody:text \
proconfig:text[] proacl:text[]\n\
6104 pg_publication r oid:oid pubname:name pubowner:oid puballtables:bool pubinsert:bool \
pubupdate:bool pubdelete:bool pubtruncate:bool pubviaroot:bool\n\
6237 pg_publication_namespace r oid:oid pnpubid:oid pnnspid:oid\n\
6106 pg_publication_rel r oid:oid prpubid:oid prrelid:oid prqual:text prattrs:int2vector\n\
12068 pg_publication_tables v pubname:name schemaname:name tablename:name attnames:name[] \
rowfilter:text\n\
3541 pg_range r rngtypid:oid rngsubtype:oid rngmultitypid:oid rngcollation:oid rngsubopc:oid \
rngcanonical:regproc rngsubdiff:regproc\n\
6000 pg_replication_origin r roident:oid roname:text\n\
12332 pg_replication_origin_status v local_id:oid external_id:text remote_lsn:text local_lsn:text\n\
12257 pg_replication_slots v slot_name:name plugin:name slot_type:text datoid:oid database:name \
temporary:bool active:bool active_pid:int4 xmin:xid catalog_xmin:xid restart_lsn:text \
confirmed_flush_lsn:text wal_status:text safe_wal_size:int8 two_phase:bool\n\
2618 pg_rewrite r oid:oid rulename:name ev_class:oid ev_type:char ev_enabled:char is_instead:bool \
ev_qual:text ev_action:text\n\
12000 pg_roles v rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool \
rolcanlogin:bool rolreplication:bool rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz \
rolbypassrls:bool rolconfig:text[] oid:oid\n\
12023 pg_rules v schemaname:name tablename:name rulename:name definition:text\n\
3596 pg_seclabel r objoid:oid classoid:oid objsubid:int4 provider:text label:text\n\
12099 pg_seclabels v objoid:oid classoid:oid objsubid:int4 objtype:text objnamespace:oid \
objname:text provider:text label:text\n\
2224 pg_sequence r seqrelid:oid seqtypid:oid seqstart:int8 seqincrement:int8 seqmax:int8 \
seqmin:int8 seqcache:int8 seqcycle:bool\n\
12048 pg_sequences v schemaname:name sequencename:name sequenceowner:name data_type:oid \
start_value:int8 min_value:int8 max_value:int8 increment_by:int8 cycle:bool cache_size:int8 \
last_value:int8\n\
12104 pg_settings v name:text setting:text unit:text category:text short_desc:text extra_desc:text \
context:text vartype:text source:text min_val:text max_val:text enumvals:text[] boot_val:text \
reset_val:text sourcefile:text sourceline:int4 pending_restart:bool\n\
12005 pg_shadow v usename:name usesysid:oid usecreatedb:bool usesuper:bool userepl:bool \
usebypassrls:bool passwd:text valuntil:timestamptz useconfig:text[]\n\
1214 pg_shdepend r dbid:oid classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid \
deptype:char\n\
2396 pg_shdescription r objoid:oid classoid:oid description:text\n\
12134 pg_shmem_allocations v name:text off:int8 size:int8 allocated_size:int8\n\
3592 pg_shseclabel r objoid:oid classoid:oid provider:text label:text\n\
12222 pg_stat_activity v datid:oid datname:name pid:int4 leader_pid:int4 usesysid:oid usename:name \
application_name:text client_addr:text client_hostname:text client_port:int4 \
backend_start:timestamptz xact_start:timestamptz query_start:timestamptz state_change:timestamptz \
wait_event_type:text wait_event:text state:text backend_xid:xid backend_xmin:xid query_id:int8 \
query:text backend_type:text\n\
12183 pg_stat_all_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_scan:int8 idx_tup_read:int8 idx_tup_fetch:int8\n\
12142 pg_stat_all_tables v relid:oid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 \
idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 \
n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8 n_ins_since_vacuum:int8 \
last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz \
last_autoanalyze:timestamptz vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 \
autoanalyze_count:int8\n\
12285 pg_stat_archiver v archived_count:int8 last_archived_wal:text last_archived_time:timestamptz \
failed_count:int8 last_failed_wal:text last_failed_time:timestamptz stats_reset:timestamptz\n\
12289 pg_stat_bgwriter v checkpoints_timed:int8 checkpoints_req:int8 checkpoint_write_time:float8 \
checkpoint_sync_time:float8 buffers_checkpoint:int8 buffers_clean:int8 maxwritten_clean:int8 \
buffers_backend:int8 buffers_backend_fsync:int8 buffers_alloc:int8 stats_reset:timestamptz\n\
12266 pg_stat_database v datid:oid datname:name numbackends:int4 xact_commit:int8 \
xact_rollback:int8 blks_read:int8 blks_hit:int8 tup_returned:int8 tup_fetched:int8 \
tup_inserted:int8 tup_updated:int8 tup_deleted:int8 conflicts:int8 temp_files:int8 temp_bytes:int8 \
deadlocks:int8 checksum_failures:int8 checksum_last_failure:timestamptz blk_read_time:float8 \
blk_write_time:float8 session_time:float8 active_time:float8 idle_in_transaction_time:float8 \
sessions:int8 sessions_abandoned:int8 sessions_fatal:int8 sessions_killed:int8 \
stats_reset:timestamptz\n\
12271 pg_stat_database_conflicts v datid:oid datname:name confl_tablespace:int8 confl_lock:int8 \
confl_snapshot:int8 confl_bufferpin:int8 confl_deadlock:int8\n\
12253 pg_stat_gssapi v pid:int4 gss_authenticated:bool principal:text encrypted:bool\n\
12297 pg_stat_progress_analyze v pid:int4 datid:oid datname:name relid:oid phase:text \
sample_blks_total:int8 sample_blks_scanned:int8 ext_stats_total:int8 ext_stats_computed:int8 \
child_tables_total:int8 child_tables_done:int8 current_child_table_relid:oid\n\
12317 pg_stat_progress_basebackup v pid:int4 phase:text backup_total:int8 backup_streamed:int8 \
tablespaces_total:int8 tablespaces_streamed:int8\n\
12307 pg_stat_progress_cluster v pid:int4 datid:oid datname:name relid:oid command:text \
phase:text cluster_index_relid:oid heap_tuples_scanned:int8 heap_tuples_written:int8 \
heap_blks_total:int8 heap_blks_scanned:int8 index_rebuild_count:int8\n\
12322 pg_stat_progress_copy v pid:int4 datid:oid datname:name relid:oid command:text type:text \
bytes_processed:int8 bytes_total:int8 tuples_processed:int8 tuples_excluded:int8\n\
12312 pg_stat_progress_create_index v pid:int4 datid:oid datname:name relid:oid index_relid:oid \
command:text phase:text lockers_total:int8 lockers_done:int8 current_locker_pid:int8 \
blocks_total:int8 blocks_done:int8 tuples_total:int8 tuples_done:int8 partitions_total:int8 \
partitions_done:int8\n\
12302 pg_stat_progress_vacuum v pid:int4 datid:oid datname:name relid:oid phase:text \
heap_blks_total:int8 heap_blks_scanned:int8 heap_blks_vacuumed:int8 index_vacuum_count:int8 \
max_dead_tuples:int8 num_dead_tuples:int8\n\
12240 pg_stat_recovery_prefetch v stats_reset:timestamptz prefetch:int8 hit:int8 skip_init:int8 \
skip_new:int8 skip_fpw:int8 skip_rep:int8 wal_distance:int4 block_distance:int4 io_depth:int4\n\
12227 pg_stat_replication v pid:int4 usesysid:oid usename:name application_name:text \
client_addr:text client_hostname:text client_port:int4 backend_start:timestamptz backend_xmin:xid \
state:text sent_lsn:text write_lsn:text flush_lsn:text replay_lsn:text write_lag:text \
flush_lag:text replay_lag:text sync_priority:int4 sync_state:text reply_time:timestamptz\n\
12262 pg_stat_replication_slots v slot_name:text spill_txns:int8 spill_count:int8 spill_bytes:int8 \
stream_txns:int8 stream_count:int8 stream_bytes:int8 total_txns:int8 total_bytes:int8 \
stats_reset:timestamptz\n\
12232 pg_stat_slru v name:text blks_zeroed:int8 blks_hit:int8 blks_read:int8 blks_written:int8 \
blks_exists:int8 flushes:int8 truncates:int8 stats_reset:timestamptz\n\
12249 pg_stat_ssl v pid:int4 ssl:bool version:text cipher:text bits:int4 client_dn:text \
client_serial:int8 issuer_dn:text\n\
12244 pg_stat_subscription v subid:oid subname:name pid:int4 relid:oid received_lsn:text \
last_msg_send_time:timestamptz last_msg_receipt_time:timestamptz latest_end_lsn:text \
latest_end_time:timestamptz\n\
12336 pg_stat_subscription_stats v subid:oid subname:name apply_error_count:int8 \
sync_error_count:int8 stats_reset:timestamptz\n\
12188 pg_stat_sys_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_scan:int8 idx_tup_read:int8 idx_tup_fetch:int8\n\
12152 pg_stat_sys_tables v relid:oid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 \
idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 \
n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8 n_ins_since_vacuum:int8 \
last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz \
last_autoanalyze:timestamptz vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 \
autoanalyze_count:int8\n\
12275 pg_stat_user_functions v funcid:oid schemaname:name funcname:name calls:int8 \
total_time:float8 self_time:float8\n\
12192 pg_stat_user_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_scan:int8 idx_tup_read:int8 idx_tup_fetch:int8\n\
12161 pg_stat_user_tables v relid:oid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 \
idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 \
n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8 n_ins_since_vacuum:int8 \
last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz \
last_autoanalyze:timestamptz vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 \
autoanalyze_count:int8\n\
12293 pg_stat_wal v wal_records:int8 wal_fpi:int8 wal_bytes:int8 wal_buffers_full:int8 \
wal_write:int8 wal_sync:int8 wal_write_time:float8 wal_sync_time:float8 stats_reset:timestamptz\n\
12236 pg_stat_wal_receiver v pid:int4 status:text receive_start_lsn:text receive_start_tli:int4 \
written_lsn:text flushed_lsn:text received_tli:int4 last_msg_send_time:timestamptz \
last_msg_receipt_time:timestamptz latest_end_lsn:text latest_end_time:timestamptz slot_name:text \
sender_host:text sender_port:int4 conninfo:text\n\
12147 pg_stat_xact_all_tables v relid:oid schemaname:name relname:name seq_scan:int8 \
seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 \
n_tup_hot_upd:int8\n\
12157 pg_stat_xact_sys_tables v relid:oid schemaname:name relname:name seq_scan:int8 \
seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 \
n_tup_hot_upd:int8\n\
12280 pg_stat_xact_user_functions v funcid:oid schemaname:name funcname:name calls:int8 \
total_time:float8 self_time:float8\n\
12166 pg_stat_xact_user_tables v relid:oid schemaname:name relname:name seq_scan:int8 \
seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 \
n_tup_hot_upd:int8\n\
12196 pg_statio_all_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_blks_read:int8 idx_blks_hit:int8\n\
12209 pg_statio_all_sequences v relid:oid schemaname:name relname:name blks_read:int8 \
blks_hit:int8\n\
12170 pg_statio_all_tables v relid:oid schemaname:name relname:name heap_blks_read:int8 \
heap_blks_hit:int8 idx_blks_read:int8 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 \
tidx_blks_read:int8 tidx_blks_hit:int8\n\
12201 pg_statio_sys_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_blks_read:int8 idx_blks_hit:int8\n\
12214 pg_statio_sys_sequences v relid:oid schemaname:name relname:name blks_read:int8 \
blks_hit:int8\n\
12175 pg_statio_sys_tables v relid:oid schemaname:name relname:name heap_blks_read:int8 \
heap_blks_hit:int8 idx_blks_read:int8 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 \
tidx_blks_read:int8 tidx_blks_hit:int8\n\
12205 pg_statio_user_indexes v relid:oid indexrelid:oid schemaname:name relname:name \
indexrelname:name idx_blks_read:int8 idx_blks_hit:int8\n\
12218 pg_statio_user_sequences v relid:oid schemaname:name relname:name blks_read:int8 \
blks_hit:int8\n\
12179 pg_statio_user_tables v relid:oid schemaname:name relname:name heap_blks_read:int8 \
heap_blks_hit:int8 idx_blks_read:int8 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 \
tidx_blks_read:int8 tidx_blks_hit:int8\n\
2619 pg_statistic r starelid:oid staattnum:int2 stainherit:bool stanullfrac:float4 stawidth:int4 \
stadistinct:float4 stakind1:int2 stakind2:int2 stakind3:int2 stakind4:int2 stakind5:int2 \
staop1:oid staop2:oid staop3:oid staop4:oid staop5:oid stacoll1:oid stacoll2:oid stacoll3:oid \
stacoll4:oid stacoll5:oid stanumbers1:float4[] stanumbers2:float4[] stanumbers3:float4[] \
stanumbers4:float4[] stanumbers5:float4[] stavalues1:text stavalues2:text stavalues3:text \
stavalues4:text stavalues5:text\n\
3381 pg_statistic_ext r oid:oid stxrelid:oid stxname:name stxnamespace:oid stxowner:oid \
stxstattarget:int4 stxkeys:int2vector stxkind:char[] stxexprs:text\n\
3429 pg_statistic_ext_data r stxoid:oid stxdinherit:bool stxdndistinct:text stxddependencies:text \
stxdmcv:text stxdexpr:text\n\
12053 pg_stats v schemaname:name tablename:name attname:name inherited:bool null_frac:float4 \
avg_width:int4 n_distinct:float4 most_common_vals:text most_common_freqs:float4[] \
histogram_bounds:text correlation:float4 most_common_elems:text most_common_elem_freqs:float4[] \
elem_count_histogram:float4[]\n\
12058 pg_stats_ext v schemaname:name tablename:name statistics_schemaname:name \
statistics_name:name statistics_owner:name attnames:name[] exprs:text[] kinds:char[] \
inherited:bool n_distinct:text dependencies:text most_common_vals:text[] \
most_common_val_nulls:bool[] most_common_freqs:float8[] most_common_base_freqs:float8[]\n\
12063 pg_stats_ext_exprs v schemaname:name tablename:name statistics_schemaname:name \
statistics_name:name statistics_owner:name expr:text inherited:bool null_frac:float4 \
avg_width:int4 n_distinct:float4 most_common_vals:text most_common_freqs:float4[] \
histogram_bounds:text correlation:float4 most_common_elems:text most_common_elem_freqs:float4[] \
elem_count_histogram:float4[]\n\
6100 pg_subscription r oid:oid subdbid:oid subskiplsn:text subname:name subowner:oid \
subenabled:bool subbinary:bool substream:bool subtwophasestate:char subdisableonerr:bool \
subconninfo:text subslotname:name subsynccommit:text subpublications:text[]\n\
6102 pg_subscription_rel r srsubid:oid srrelid:oid srsubstate:char srsublsn:text\n\
12033 pg_tables v schemaname:name tablename:name tableowner:name tablespace:name hasindexes:bool \
hasrules:bool hastriggers:bool rowsecurity:bool\n\
1213 pg_tablespace r oid:oid spcname:name spcowner:oid spcacl:text[] spcoptions:text[]\n\
12122 pg_timezone_abbrevs v abbrev:text utc_offset:interval is_dst:bool\n\
12126 pg_timezone_names v name:text abbrev:text utc_offset:interval is_dst:bool\n\
3576 pg_transform r oid:oid trftype:oid trflang:oid trffromsql:regproc trftosql:regproc\n\
2620 pg_trigger r oid:oid tgrelid:oid tgparentid:oid tgname:name tgfoid:oid tgtype:int2 \
tgenabled:char tgisinternal:bool tgconstrrelid:oid tgconstrindid:oid tgconstraint:oid \
tgdeferrable:bool tginitdeferred:bool tgnargs:int2 tgattr:int2vector tgargs:text tgqual:text \
tgoldtable:name tgnewtable:name\n\
3602 pg_ts_config r oid:oid cfgname:name cfgnamespace:oid cfgowner:oid cfgparser:oid\n\
3603 pg_ts_config_map r mapcfg:oid maptokentype:int4 mapseqno:int4 mapdict:oid\n\
3600 pg_ts_dict r oid:oid dictname:name dictnamespace:oid dictowner:oid dicttemplate:oid \
dictinitoption:text\n\
3601 pg_ts_parser r oid:oid prsname:name prsnamespace:oid prsstart:regproc prstoken:regproc \
prsend:regproc prsheadline:regproc prslextype:regproc\n\
3764 pg_ts_template r oid:oid tmplname:name tmplnamespace:oid tmplinit:regproc tmpllexize:regproc\n\
1247 pg_type r oid:oid typname:name typnamespace:oid typowner:oid typlen:int2 typbyval:bool \
typtype:char typcategory:char typispreferred:bool typisdefined:bool typdelim:char typrelid:oid \
typsubscript:regproc typelem:oid typarray:oid typinput:regproc typoutput:regproc \
typreceive:regproc typsend:regproc typmodin:regproc typmodout:regproc typanalyze:regproc \
typalign:char typstorage:char typnotnull:bool typbasetype:oid typtypmod:int4 typndims:int4 \
typcollation:oid typdefaultbin:text typdefault:text typacl:text[]\n\
12014 pg_user v usename:name usesysid:oid usecreatedb:bool usesuper:bool userepl:bool \
usebypassrls:bool passwd:text valuntil:timestamptz useconfig:text[]\n\
1418 pg_user_mapping r oid:oid umuser:oid umserver:oid umoptions:text[]\n\
12327 pg_user_mappings v umid:oid srvid:oid srvname:name umuser:oid usename:name umoptions:text[]\n\
12028 pg_views v schemaname:name viewname:name viewowner:name definition:text\n\
";

/// The views of `information_schema`, in the same form.
pub(super) const INFORMATION_SCHEMA: &str = "\
13301 applicable_roles v grantee:name role_name:name is_grantable:text\n\
13302 character_sets v character_set_catalog:name character_set_schema:name \
character_set_name:name character_repertoire:name form_of_use:name default_collate_catalog:name \
default_collate_schema:name default_collate_name:name\n\
13303 check_constraints v constraint_catalog:name constraint_schema:name constraint_name:name \
check_clause:text\n\
13304 collations v collation_catalog:name collation_schema:name collation_name:name \
pad_attribute:text\n\
13305 column_privileges v grantor:name grantee:name table_catalog:name table_schema:name \
table_name:name column_name:name privilege_type:text is_grantable:text\n\
13306 columns v table_catalog:name table_schema:name table_name:name column_name:name \
ordinal_position:int4 column_default:text is_nullable:text data_type:text \
character_maximum_length:int4 character_octet_length:int4 numeric_precision:int4 \
numeric_precision_radix:int4 numeric_scale:int4 datetime_precision:int4 interval_type:text \
interval_precision:int4 character_set_catalog:name character_set_schema:name \
character_set_name:name collation_catalog:name collation_schema:name collation_name:name \
domain_catalog:name domain_schema:name domain_name:name udt_catalog:name udt_schema:name \
udt_name:name scope_catalog:name scope_schema:name scope_name:name maximum_cardinality:int4 \
dtd_identifier:name is_self_referencing:text is_identity:text identity_generation:text \
identity_start:text identity_increment:text identity_maximum:text identity_minimum:text \
identity_cycle:text is_generated:text generation_expression:text is_updatable:text\n\
13307 constraint_column_usage v table_catalog:name table_schema:name table_name:name \
column_name:name constraint_catalog:name constraint_schema:name constraint_name:name\n\
13308 constraint_table_usage v table_catalog:name table_schema:name table_name:name \
constraint_catalog:name constraint_schema:name constraint_name:name\n\
13309 domains v domain_catalog:name domain_schema:name domain_name:name data_type:text \
character_maximum_length:int4 character_octet_length:int4 character_set_catalog:name \
character_set_schema:name character_set_name:name collation_catalog:name collation_schema:name \
collation_name:name numeric_precision:int4 numeric_precision_radix:int4 numeric_scale:int4 \
datetime_precision:int4 interval_type:text interval_precision:int4 domain_default:text \
udt_catalog:name udt_schema:name udt_name:name scope_catalog:name scope_schema:name \
scope_name:name maximum_cardinality:int4 dtd_identifier:name\n\
13310 element_types v object_catalog:name object_schema:name object_name:name object_type:text \
collection_type_identifier:name data_type:text character_maximum_length:int4 \
character_octet_length:int4 character_set_catalog:name character_set_schema:name \
character_set_name:name collation_catalog:name collation_schema:name collation_name:name \
numeric_precision:int4 numeric_precision_radix:int4 numeric_scale:int4 datetime_precision:int4 \
interval_type:text interval_precision:int4 domain_default:text udt_catalog:name udt_schema:name \
udt_name:name scope_catalog:name scope_schema:name scope_name:name maximum_cardinality:int4 \
dtd_identifier:name\n\
13311 enabled_roles v role_name:name\n\
13312 foreign_tables v foreign_table_catalog:name foreign_table_schema:name \
foreign_table_name:name foreign_server_catalog:name foreign_server_name:name\n\
13313 information_schema_catalog_name v catalog_name:name\n\
13314 key_column_usage v constraint_catalog:name constraint_schema:name constraint_name:name \
table_catalog:name table_schema:name table_name:name column_name:name ordinal_position:int4 \
position_in_unique_constraint:int4\n\
13315 parameters v specific_catalog:name specific_schema:name specific_name:name \
ordinal_position:int4 parameter_mode:text is_result:text as_locator:text parameter_name:name \
data_type:text character_maximum_length:int4 character_octet_length:int4 \
character_set_catalog:name character_set_schema:name character_set_name:name \
collation_catalog:name collation_schema:name collation_name:name numeric_precision:int4 \
numeric_precision_radix:int4 numeric_scale:int4 datetime_precision:int4 interval_type:text \
interval_precision:int4 udt_catalog:name udt_schema:name udt_name:name scope_catalog:name \
scope_schema:name scope_name:name maximum_cardinality:int4 dtd_identifier:name \
parameter_default:text\n\
13316 referential_constraints v constraint_catalog:name constraint_schema:name \
constraint_name:name unique_constraint_catalog:name unique_constraint_schema:name \
unique_constraint_name:name match_option:text update_rule:text delete_rule:text\n\
13317 role_table_grants v grantor:name grantee:name table_catalog:name table_schema:name \
table_name:name privilege_type:text is_grantable:text with_hierarchy:text\n\
13318 routines v specific_catalog:name specific_schema:name specific_name:name \
routine_catalog:name routine_schema:name routine_name:name routine_type:text module_catalog:name \
module_schema:name module_name:name udt_catalog:name udt_schema:name udt_name:name data_type:text \
character_maximum_length:int4 character_octet_length:int4 character_set_catalog:name \
character_set_schema:name character_set_name:name collation_catalog:name collation_schema:name \
collation_name:name numeric_precision:int4 numeric_precision_radix:int4 numeric_scale:int4 \
datetime_precision:int4 interval_type:text interval_precision:int4 type_udt_catalog:name \
type_udt_schema:name type_udt_name:name scope_catalog:name scope_schema:name scope_name:name \
maximum_cardinality:int4 dtd_identifier:name routine_body:text routine_definition:text \
external_name:text external_language:text parameter_style:text is_deterministic:text \
sql_data_access:text is_null_call:text sql_path:text schema_level_routine:text \
max_dynamic_result_sets:int4 is_user_defined_cast:text is_implicitly_invocable:text \
security_type:text to_sql_specific_catalog:name to_sql_specific_schema:name \
to_sql_specific_name:name as_locator:text created:timestamptz last_altered:timestamptz \
new_savepoint_level:text is_udt_dependent:text result_cast_from_data_type:text \
result_cast_as_locator:text result_cast_char_max_length:int4 result_cast_char_octet_length:int4 \
result_cast_char_set_catalog:name result_cast_char_set_schema:name result_cast_char_set_name:name \
result_cast_collation_catalog:name result_cast_collation_schema:name \
result_cast_collation_name:name result_cast_numeric_precision:int4 \
result_cast_numeric_precision_radix:int4 result_cast_numeric_scale:int4 \
result_cast_datetime_precision:int4 result_cast_interval_type:text \
result_cast_interval_precision:int4 result_cast_type_udt_catalog:name \
result_cast_type_udt_schema:name result_cast_type_udt_name:name result_cast_scope_catalog:name \
result_cast_scope_schema:name result_cast_scope_name:name result_cast_maximum_cardinality:int4 \
result_cast_dtd_identifier:name\n\
13319 schemata v catalog_name:name schema_name:name schema_owner:name \
default_character_set_catalog:name default_character_set_schema:name \
default_character_set_name:name sql_path:text\n\
13320 sequences v sequence_catalog:name sequence_schema:name sequence_name:name data_type:text \
numeric_precision:int4 numeric_precision_radix:int4 numeric_scale:int4 start_value:text \
minimum_value:text maximum_value:text increment:text cycle_option:text\n\
13321 table_constraints v constraint_catalog:name constraint_schema:name constraint_name:name \
table_catalog:name table_schema:name table_name:name constraint_type:text is_deferrable:text \
initially_deferred:text enforced:text nulls_distinct:text\n\
13322 table_privileges v grantor:name grantee:name table_catalog:name table_schema:name \
table_name:name privilege_type:text is_grantable:text with_hierarchy:text\n\
13323 tables v table_catalog:name table_schema:name table_name:name table_type:text \
self_referencing_column_name:name reference_generation:text user_defined_type_catalog:name \
user_defined_type_schema:name user_defined_type_name:name is_insertable_into:text is_typed:text \
commit_action:text\n\
13324 triggers v trigger_catalog:name trigger_schema:name trigger_name:name \
event_manipulation:text event_object_catalog:name event_object_schema:name event_object_table:name \
action_order:int4 action_condition:text action_statement:text action_orientation:text \
action_timing:text action_reference_old_table:name action_reference_new_table:name \
action_reference_old_row:name action_reference_new_row:name created:timestamptz\n\
13325 user_defined_types v user_defined_type_catalog:name user_defined_type_schema:name \
user_defined_type_name:name user_defined_type_category:text is_instantiable:text is_final:text \
ordering_form:text ordering_category:text ordering_routine_catalog:name \
ordering_routine_schema:name ordering_routine_name:name reference_type:text data_type:text \
character_maximum_length:int4 character_octet_length:int4 character_set_catalog:name \
character_set_schema:name character_set_name:name collation_catalog:name collation_schema:name \
collation_name:name numeric_precision:int4 numeric_precision_radix:int4 numeric_scale:int4 \
datetime_precision:int4 interval_type:text interval_precision:int4 source_dtd_identifier:name \
ref_dtd_identifier:name\n\
13326 view_table_usage v view_catalog:name view_schema:name view_name:name table_catalog:name \
table_schema:name table_name:name\n\
13327 views v table_catalog:name table_schema:name table_name:name view_definition:text \
check_option:text is_updatable:text is_insertable_into:text is_trigger_updatable:text \
is_trigger_deletable:text is_trigger_insertable_into:text\n\
";
