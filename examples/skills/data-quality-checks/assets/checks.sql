-- freshness, block: yesterday must have trips
select 'freshness' as "check", 'block' as severity, 'no trips for ' || date('now', '-1 day') as detail
where not exists (
    select 1 from trips where substr(started_at, 1, 10) = date('now', '-1 day')
);

-- duplicate_ride, block: one bike cannot start twice in the same second
select 'duplicate_ride' as "check", 'block' as severity,
       bike_id || ' at ' || started_at || ': ' || count(*) || ' rows' as detail
from trips
group by bike_id, started_at
having count(*) > 1;

-- orphan_station, warn: rides that end at a station we do not know
select 'orphan_station' as "check", 'warn' as severity,
       end_station_id || ': ' || count(*) || ' rides' as detail
from trips
where end_station_id not in (select station_id from stations)
group by end_station_id;

-- volume, warn: more than 40 % below the mean of the same weekday in the last four weeks
with days as (
    select substr(started_at, 1, 10) as day, count(*) as rides from trips group by 1
),
usual as (
    select avg(rides) as rides from days
    where day in (date('now', '-8 days'), date('now', '-15 days'),
                  date('now', '-22 days'), date('now', '-29 days'))
)
select 'volume' as "check", 'warn' as severity,
       days.rides || ' rides, usual ' || round(usual.rides) as detail
from days, usual
where days.day = date('now', '-1 day') and days.rides < 0.6 * usual.rides;
