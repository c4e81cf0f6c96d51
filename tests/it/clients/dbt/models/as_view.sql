{{ config(materialized='view') }}
select o.id, c.name, o.amount from {{ ref('orders') }} o join {{ ref('customers') }} c on c.id = o.customer
