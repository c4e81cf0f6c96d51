{{ config(materialized='table') }}
select name, count(*) as orders, sum(amount) as amount from {{ ref('as_view') }} group by name
