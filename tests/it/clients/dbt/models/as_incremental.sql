{{ config(materialized='incremental', unique_key='id', incremental_strategy='delete+insert') }}
select id, amount, '{{ "later" if is_incremental() else "first" }}' as run from {{ ref('as_view') }}
{% if is_incremental() %}
where id > (select max(id) - 2 from {{ this }})
{% endif %}
