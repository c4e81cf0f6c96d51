{{ config(materialized='materialized_view', indexes=[{'columns': ['name']}]) }}
select c.name, count(*) as orders from {{ ref('orders') }} o join {{ ref('customers') }} c on c.id = o.customer group by c.name
