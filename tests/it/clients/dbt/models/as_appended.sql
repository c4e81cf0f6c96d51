{{ config(materialized='incremental', incremental_strategy='append') }}
select id, '{{ "later" if is_incremental() else "first" }}' as run from {{ ref('as_view') }}
